package mapstore

import (
	"time"

	"belfry"
	"belfry/store"
)

// Fault is a mistake that a driver could make, to be planted in a store: see [Planted].
type Fault string

// The faults, each named as the wrong fact that it makes true.
const (
	KeyIsIgnored                  Fault = "KeyIsIgnored"
	FingerprintIsIgnored          Fault = "FingerprintIsIgnored"
	FactIsIgnored                 Fault = "FactIsIgnored"
	FactIsNeverFreed              Fault = "FactIsNeverFreed"
	UnknownFreesTheFact           Fault = "UnknownFreesTheFact"
	DuplicatesAreNotCounted       Fault = "DuplicatesAreNotCounted"
	BatchIsHalfWritten            Fault = "BatchIsHalfWritten"
	CancelFlipsTheArmed           Fault = "CancelFlipsTheArmed"
	ClaimIsNotExclusive           Fault = "ClaimIsNotExclusive"
	ClaimTakesEarly               Fault = "ClaimTakesEarly"
	AloneIsForgotten              Fault = "AloneIsForgotten"
	LanesAreMixed                 Fault = "LanesAreMixed"
	ParkedNeverComesUp            Fault = "ParkedNeverComesUp"
	ArmNeedsNoClaim               Fault = "ArmNeedsNoClaim"
	ArmIgnoresTheOptOut           Fault = "ArmIgnoresTheOptOut"
	ArmIgnoresTheDeadline         Fault = "ArmIgnoresTheDeadline"
	ArmIgnoresTheEndpoint         Fault = "ArmIgnoresTheEndpoint"
	ArmIgnoresThePause            Fault = "ArmIgnoresThePause"
	ArmIgnoresTheSuppression      Fault = "ArmIgnoresTheSuppression"
	ArmIgnoresTheVerdict          Fault = "ArmIgnoresTheVerdict"
	ShadowIsSent                  Fault = "ShadowIsSent"
	CooldownLetsTwoFly            Fault = "CooldownLetsTwoFly"
	CooldownNeverEnds             Fault = "CooldownNeverEnds"
	SettleNeedsNoClaim            Fault = "SettleNeedsNoClaim"
	LateWordIsLost                Fault = "LateWordIsLost"
	MarkMovesOnFailure            Fault = "MarkMovesOnFailure"
	MarkMovesBack                 Fault = "MarkMovesBack"
	NextChannelOnlyAfterFailure   Fault = "NextChannelOnlyAfterFailure"
	GoneRetiresTheNewRegistration Fault = "GoneRetiresTheNewRegistration"
	RepairForgetsTheArm           Fault = "RepairForgetsTheArm"
	RepairTakesTheLiving          Fault = "RepairTakesTheLiving"
	EveryLossCountsAsPoison       Fault = "EveryLossCountsAsPoison"
	OptOutLeavesTheWaiting        Fault = "OptOutLeavesTheWaiting"
	SuppressionLeavesTheWaiting   Fault = "SuppressionLeavesTheWaiting"
	RetirementLeavesTheWaiting    Fault = "RetirementLeavesTheWaiting"
	TokenStaysWithItsOldOwner     Fault = "TokenStaysWithItsOldOwner"
	EveryAddressMoves             Fault = "EveryAddressMoves"
	NewTokenHasNoSuccessor        Fault = "NewTokenHasNoSuccessor"
	TaintedIsHandedOn             Fault = "TaintedIsHandedOn"
	ErasureLeavesTheData          Fault = "ErasureLeavesTheData"
	LiftWakesNothing              Fault = "LiftWakesNothing"
	SensitiveIsKept               Fault = "SensitiveIsKept"
	ReadsIgnoreTheProject         Fault = "ReadsIgnoreTheProject"
	StatsForgetTheMissed          Fault = "StatsForgetTheMissed"
	PurgeFreesTheFact             Fault = "PurgeFreesTheFact"
	PurgeForgetsTheKey            Fault = "PurgeForgetsTheKey"
	ArmJudgesAnOldSnapshot        Fault = "ArmJudgesAnOldSnapshot"
	ArmForgetsTheMedium           Fault = "ArmForgetsTheMedium"
	ALiftedPauseStillParks        Fault = "ALiftedPauseStillParks"
	ArmLeavesTheLease             Fault = "ArmLeavesTheLease"
	PayloadIsNotFrozen            Fault = "PayloadIsNotFrozen"
	DeferralsAreNotCounted        Fault = "DeferralsAreNotCounted"
	TargetsAreTriedAgain          Fault = "TargetsAreTriedAgain"
	CancelledGoesOn               Fault = "CancelledGoesOn"
	ErasedGoesOn                  Fault = "ErasedGoesOn"
	ErasureForgetsLateMarks       Fault = "ErasureForgetsLateMarks"
	SummaryIsTheDeliverys         Fault = "SummaryIsTheDeliverys"
	DeviceIsToldTwice             Fault = "DeviceIsToldTwice"
	KeyNeverExpires               Fault = "KeyNeverExpires"
)

// Faults lists every fault.
var Faults = []Fault{
	KeyIsIgnored, FingerprintIsIgnored, FactIsIgnored, FactIsNeverFreed, UnknownFreesTheFact,
	DuplicatesAreNotCounted, BatchIsHalfWritten, CancelFlipsTheArmed, ClaimIsNotExclusive, ClaimTakesEarly,
	AloneIsForgotten, LanesAreMixed, ParkedNeverComesUp, ArmNeedsNoClaim, ArmIgnoresTheOptOut,
	ArmIgnoresTheDeadline, ArmIgnoresTheEndpoint, ArmIgnoresThePause, ArmIgnoresTheSuppression,
	ArmIgnoresTheVerdict, ShadowIsSent, CooldownLetsTwoFly, CooldownNeverEnds, SettleNeedsNoClaim, LateWordIsLost,
	MarkMovesOnFailure, MarkMovesBack, NextChannelOnlyAfterFailure, GoneRetiresTheNewRegistration,
	RepairForgetsTheArm, RepairTakesTheLiving, EveryLossCountsAsPoison, OptOutLeavesTheWaiting,
	SuppressionLeavesTheWaiting, RetirementLeavesTheWaiting, TokenStaysWithItsOldOwner, EveryAddressMoves,
	NewTokenHasNoSuccessor, TaintedIsHandedOn, ErasureLeavesTheData, LiftWakesNothing, SensitiveIsKept,
	ReadsIgnoreTheProject, StatsForgetTheMissed, PurgeFreesTheFact, PurgeForgetsTheKey, ArmJudgesAnOldSnapshot,
	ArmForgetsTheMedium, ArmLeavesTheLease, ALiftedPauseStillParks, PayloadIsNotFrozen, DeferralsAreNotCounted, TargetsAreTriedAgain,
	CancelledGoesOn, ErasedGoesOn, ErasureForgetsLateMarks, SummaryIsTheDeliverys, DeviceIsToldTwice,
	KeyNeverExpires,
}

func (s *Store) is(f Fault) bool { return s.fault == f }

// leaves says that a fault keeps a change of intent from withdrawing for a reason.
func (s *Store) leaves(why belfry.Reason) bool {
	return map[Fault]belfry.Reason{
		OptOutLeavesTheWaiting: belfry.ReasonOptedOut, SuppressionLeavesTheWaiting: belfry.ReasonSuppressed,
		RetirementLeavesTheWaiting: belfry.ReasonEndpointRetired,
	}[s.fault] == why
}

// spoil leaves out what a fault in arming would.
func (s *Store) spoil(a *belfry.Arming, r row, d belfry.Delivery) {
	ignored := map[Fault]belfry.Reason{
		ArmIgnoresTheOptOut: belfry.ReasonOptedOut, ArmIgnoresTheEndpoint: belfry.ReasonEndpointRetired,
		ArmIgnoresTheSuppression: belfry.ReasonSuppressed, ShadowIsSent: belfry.ReasonShadow,
	}
	switch {
	case a.Forbidden != "" && ignored[s.fault] == a.Forbidden:
		a.Forbidden = ""
	case s.is(ArmIgnoresTheDeadline) && a.Now.After(r.Deadline):
		a.Now = r.Deadline
	case s.is(ArmIgnoresThePause):
		a.Pause = nil
	case s.is(ArmIgnoresTheVerdict):
		a.Checked = time.Time{}
	case s.is(ArmForgetsTheMedium) && a.Forbidden == belfry.ReasonOptedOut:
		category, _ := s.category(r.Project, r.Category)
		p, _ := s.preferences.get(named{r.Project, r.Recipient})
		p = copyOf(p)
		for _, switches := range p {
			delete(switches, string(belfry.MediumOf(d.Channel)))
		}
		if p.Allows(category.Consent, r.Category, d.Channel) {
			a.Forbidden = ""
		}
	}
}

// look reads what bears on a claim before the transaction that arms it.
func (s *Store) look(a store.Arm) {
	s.mu.Lock()
	if s.old == nil {
		s.old = map[belfry.ID]belfry.Facts{}
	}
	for _, i := range a.Claim.Items {
		s.old[i.Notification.ID] = s.bearing(i.Notification)
	}
	s.mu.Unlock()
	time.Sleep(time.Millisecond) // long enough for another to commit
}
